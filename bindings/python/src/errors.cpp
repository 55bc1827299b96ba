// The engine's exceptions as Python classes, and Python's on their way through the engine.

#include <atomic>
#include <chrono>
#include <exception>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include "py.h"
#include "strata/c/plugin.h"
#include "strata/core/error.h"
#include "strata/ops/linalg/linalg.h"

namespace strata::python {
namespace {

PyObject* g_base;
// C++ exceptions that are no errors (checkpoint ends its second run with one) cross Python's frames beside a
// BaseException, which `except Exception` lets pass.
PyObject* g_carrier;
thread_local std::exception_ptr t_carried;

std::atomic<bool> g_ending{false};
std::thread::id g_last_thread;
std::atomic<int> g_outside{0};  // threads that run without the GIL in here

struct Class {
  const char* name;
  const char* doc;
  PyObject* type = nullptr;
};
Class g_shape{"ShapeError", "Sizes that do not fit together."};
Class g_dtype{"DTypeError", "An element type that the op does not take."};
Class g_index{"IndexError", "An index or dim out of range."};
Class g_value{"ValueError", "An argument with a value that is not allowed."};
Class g_device{"DeviceError", "Tensors on different devices, no kernel there, or a failed launch."};
Class g_autograd{"AutogradError", "Misuse of the tape: backward twice, an overwritten saved tensor, no gradient."};
Class g_memory{"MemoryError", "Memory could not be had; the text says who holds what."};
Class g_plugin{"PluginError", "A plugin that cannot be loaded, or that broke the rules of strata/c/strata.h."};
Class g_linalg{"LinAlgError", "A matrix that has no such decomposition, or no inverse."};
Class g_io{"IoError", "A file that could not be read or written, or holds something invalid."};

void make(nb::module_& m, Class& c, PyObject* second) {
  PyObject* bases = second ? PyTuple_Pack(2, g_base, second) : PyTuple_Pack(1, g_base);
  const std::string name = std::string("strata.errors.") + c.name;
  c.type = PyErr_NewExceptionWithDoc(name.c_str(), c.doc, bases, nullptr);
  Py_DECREF(bases);
  if (!c.type) throw nb::python_error();
  m.attr(c.name) = nb::handle(c.type);
}

}  // namespace

PyObject* raise_current() {
  try {
    throw;
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const nb::builtin_exception& e) {
    PyErr_SetString(e.type() == nb::exception_type::stop_iteration ? PyExc_StopIteration
                    : e.type() == nb::exception_type::index_error  ? PyExc_IndexError
                    : e.type() == nb::exception_type::key_error    ? PyExc_KeyError
                    : e.type() == nb::exception_type::type_error   ? PyExc_TypeError
                                                                   : PyExc_ValueError,
                    e.what());
  } catch (const ShapeError& e) {
    PyErr_SetString(g_shape.type, e.what());
  } catch (const DTypeError& e) {
    PyErr_SetString(g_dtype.type, e.what());
  } catch (const IndexError& e) {
    PyErr_SetString(g_index.type, e.what());
  } catch (const ValueError& e) {
    PyErr_SetString(g_value.type, e.what());
  } catch (const DeviceError& e) {
    PyErr_SetString(g_device.type, e.what());
  } catch (const AutogradError& e) {
    PyErr_SetString(g_autograd.type, e.what());
  } catch (const MemoryError& e) {
    PyErr_SetString(g_memory.type, e.what());
  } catch (const LinAlgError& e) {
    PyErr_SetString(g_linalg.type, e.what());
  } catch (const IoError& e) {
    PyErr_SetString(g_io.type, e.what());
  } catch (const PluginError& e) {
    PyErr_SetString(g_plugin.type, e.what());
  } catch (const Error& e) {
    PyErr_SetString(g_base, e.what());
  } catch (const std::bad_alloc&) {
    PyErr_SetString(g_memory.type, "strata: not enough memory on the host for what the arguments ask");
  } catch (const std::length_error&) {
    PyErr_SetString(g_value.type, "strata: an argument asks for a longer list than memory can hold");
  } catch (const std::bad_cast&) {
    PyErr_SetString(g_dtype.type, "strata: an argument is of a type that is not taken here");
  } catch (const std::exception& e) {
    PyErr_SetString(g_base, e.what());
  } catch (...) {
    t_carried = std::current_exception();
    PyErr_SetString(g_carrier, "an exception of the engine's own, on its way");
  }
  return nullptr;
}

void throw_python() {
  if (t_carried && PyErr_ExceptionMatches(g_carrier)) {
    PyErr_Clear();
    std::rethrow_exception(std::exchange(t_carried, nullptr));
  }
  throw nb::python_error();
}

bool python_is_ending() {
  return !Py_IsInitialized() ||
         (g_ending.load(std::memory_order_acquire) && std::this_thread::get_id() != g_last_thread);
}
static void wait_for_the_end() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}
PyThreadState* give_gil() {
  PyThreadState* state = PyEval_SaveThread();
  if (python_is_ending()) wait_for_the_end();
  g_outside.fetch_add(1, std::memory_order_acq_rel);
  return state;
}
void take_gil(PyThreadState* state) {
  g_outside.fetch_sub(1, std::memory_order_acq_rel);
  if (python_is_ending()) wait_for_the_end();
  PyEval_RestoreThread(state);
}
static void bind_end(nb::module_& m) {
  m.def("_begin_end", [] {
    g_last_thread = std::this_thread::get_id();
    g_ending.store(true, std::memory_order_release);
    // What daemon threads are computing comes to an end before the engine does.
    PyThreadState* state = PyEval_SaveThread();
    for (int i = 0; i < 5000 && g_outside.load(std::memory_order_acquire) > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    PyEval_RestoreThread(state);
  });
  nb::module_::import_("atexit").attr("register")(m.attr("_begin_end"));
}

void bind_errors(nb::module_& m) {
  bind_end(m);
  g_base = PyErr_NewExceptionWithDoc("strata.errors.StrataError", "Base of every error that Strata raises on purpose.",
                                     PyExc_RuntimeError, nullptr);
  if (!g_base) throw nb::python_error();
  g_carrier = PyErr_NewException("strata.errors._Carrier", PyExc_BaseException, nullptr);
  if (!g_carrier) throw nb::python_error();
  m.attr("StrataError") = nb::handle(g_base);
  make(m, g_shape, PyExc_ValueError);
  make(m, g_dtype, PyExc_TypeError);
  make(m, g_index, PyExc_IndexError);
  make(m, g_value, PyExc_ValueError);
  make(m, g_device, nullptr);
  make(m, g_autograd, nullptr);
  make(m, g_memory, PyExc_MemoryError);
  make(m, g_io, PyExc_OSError);
  make(m, g_linalg, nullptr);
  make(m, g_plugin, PyExc_ImportError);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const nb::builtin_exception&) {
      throw;
    } catch (const nb::python_error&) {
      throw;
    } catch (const std::bad_alloc&) {
      raise_current();
    } catch (const std::length_error&) {
      raise_current();
    } catch (const std::bad_cast&) {
      raise_current();
    } catch (const Error&) {
      raise_current();
    } catch (const std::exception&) {
      throw;
    } catch (...) {
      raise_current();
    }
  });
}

Held::~Held() {
  if (!o_ || python_is_ending()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  // Freed perhaps in the middle of an error's way out: what the object's end runs must not meet that error.
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  Py_DECREF(o_);
  PyErr_Restore(type, value, trace);
  PyGILState_Release(state);
}

}  // namespace strata::python
