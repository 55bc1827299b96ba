"""What to do where a shared library that the engine uses is not on the machine."""


def explain(error: ImportError) -> ImportError:
    """The same error; a missing library's says how to get it."""
    library, missing, _ = str(error).partition(": cannot open shared object file")
    if not missing:
        return error
    return ImportError(
        f"strata needs {library}, which is not on this machine. A wheel uses the libraries of the distribution that it was "
        "built on; there this brings them:\n"
        "  sudo apt-get install libdnnl-dev libfmt-dev libhwy-dev libopenblas0-pthread libgomp1\n"
        "For another distribution build it there (pip install . in the checkout), or take the libraries into the wheel: "
        "auditwheel repair WHEEL"
    )
