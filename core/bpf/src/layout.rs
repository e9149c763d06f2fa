// SPDX-License-Identifier: MIT
//! Structs whose memory a program in the kernel, or in the watched process, and this one share.

/// The memory layout of one of them.
pub struct Layout {
    /// In C.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Name and offset in bytes of each.
    pub fields: Vec<(&'static str, usize)>,
}

/// Declares one, of integers and arrays of integers, without padding.
#[macro_export]
macro_rules! shared_struct {
    ($name:ident = $c_name:literal { $($field:ident : $type:ty),* $(,)? }) => {
        #[doc = concat!("`struct ", $c_name, "`; the header explains its fields.")]
        #[allow(missing_docs)]
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $(pub $field: $type),* }
        // SAFETY: integers and arrays of integers only, and no padding: the fields fill the struct.
        unsafe impl $crate::Pod for $name {}
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*);
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: every field is an integer or an array of integers, for which zero is a
                // value.
                unsafe { std::mem::zeroed() }
            }
        }
        impl $name {
            /// The struct as it lies in memory.
            #[allow(dead_code, reason = "not all structs are handed over")]
            pub fn bytes(&self) -> &[u8] {
                let start = std::ptr::from_ref(self).cast::<u8>();
                // SAFETY: integers without padding, read as the bytes that they are.
                unsafe { std::slice::from_raw_parts(start, size_of::<Self>()) }
            }

            /// Name in C, size in bytes, then every field's name and offset.
            pub fn layout() -> $crate::Layout {
                $crate::Layout {
                    name: $c_name,
                    size: size_of::<$name>(),
                    fields: vec![$((stringify!($field), std::mem::offset_of!($name, $field))),*],
                }
            }
        }
    };
}
