// SPDX-License-Identifier: MIT
//! Members that a reader of the source never wrote: the insides of the standard libraries'
//! atomics, cells and smart pointers. A path leaves them out, so that an atomic reads as
//! the variable that it is: `pool->open`, not `pool->open.v.value`.

/// (what the type's name begins with, member).
const INNER: &[(&str, &str)] = &[
    // libstdc++
    ("atomic<", "_M_i"),
    ("atomic<", "_M_b"),
    ("atomic<", "_M_base"),
    ("__atomic_base<", "_M_i"),
    ("__atomic_base<", "_M_p"),
    ("__atomic_float<", "_M_fp"),
    ("__atomic_flag_base", "_M_i"),
    ("unique_ptr<", "_M_t"),
    ("__uniq_ptr_impl<", "_M_t"),
    ("_Head_base<", "_M_head_impl"),
    ("__shared_ptr<", "_M_ptr"),
    // libc++
    ("__atomic_base<", "__a_"),
    ("__cxx_atomic_base_impl<", "__a_value"),
    ("atomic_flag", "__a_"),
    ("unique_ptr<", "__ptr_"),
    ("shared_ptr<", "__ptr_"),
    ("__compressed_pair_elem<", "__value_"),
    // Rust
    ("Atomic", "v"),
    ("UnsafeCell<", "value"),
    ("SyncUnsafeCell<", "value"),
    ("Cell<", "value"),
    ("ManuallyDrop<", "value"),
    ("NonNull<", "pointer"),
    ("Unique<", "pointer"),
    ("Arc<", "ptr"),
    ("ArcInner<", "data"),
    ("Rc<", "ptr"),
    ("RcBox<", "value"),
    ("RcInner<", "value"),
    ("&", "data_ptr"),
    ("&", "pointer"),
    ("Box<", "data_ptr"),
    ("Box<", "pointer"),
    // Go
    ("sync/atomic.", "v"),
];

/// Is the member one that a path leaves out?
pub(crate) fn is_inner(kind: &str, member: &str) -> bool {
    INNER
        .iter()
        .any(|(prefix, inner)| *inner == member && kind.starts_with(prefix))
}
