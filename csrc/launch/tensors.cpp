#include "tensors.h"

namespace fa4launch {

const DlExchange* exchange_of(PyObject* tensor_type) {
    PyObject* capsule = PyObject_GetAttrString(tensor_type, "__dlpack_c_exchange_api__");
    const DlExchange* table = nullptr;
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        table = static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    PyErr_Clear();
    Py_XDECREF(capsule);  // the table lives as long as the process
    if (table && (table->major != 1 || !table->borrow || !table->current_stream)) return nullptr;
    return table;
}

}  // namespace fa4launch
