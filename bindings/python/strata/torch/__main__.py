"""python -m strata.torch script.py"""

import sys

from strata.torch import run

_OURS = ("strata.torch", "runpy")


def _main() -> None:
    try:
        run(sys.argv[1:])
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and (trace.tb_frame.f_code is _CODE or trace.tb_frame.f_globals.get("__name__") in _OURS):
            trace = trace.tb_next  # the frames that led to the program are not the program's
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None


_CODE = _main.__code__
_main()
