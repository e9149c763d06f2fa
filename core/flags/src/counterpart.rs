// SPDX-License-Identifier: MIT
//! Which word of the normal run is the counterpart of one in the spin run.

use flagfinder_code::{DataHome, DataKind, Names};

/// The address of the same global variable or of the same allocation in the normal run,
/// for a word that none of its readers reached there.
pub(crate) fn by_home(spin: &Names, address: u64, normal: &Names) -> Option<u64> {
    let candidate = match spin.data(address).home {
        DataHome::Module { .. } => {
            let (module, offset) = spin.module_place(address)?;
            normal.module_address(module, offset)?
        }
        DataHome::Heap { .. } => {
            let object = spin.input().allocations.at(address)?;
            let (module, offset) = spin.module_place(object.caller)?;
            let caller = normal.module_address(module, offset)?;
            let theirs = normal.input().allocations.find(caller, object.ordinal)?;
            theirs.address.checked_add(address - object.address)?
        }
        _ => return None,
    };
    same_home(spin, address, normal, candidate).then_some(candidate)
}

/// Is it the same object in both runs: the same variable, the same thread's, the same
/// allocation of the same call site? Where its home is not known, the same place in its
/// thread's stack or in its mapping.
pub(crate) fn same_home(spin: &Names, address: u64, normal: &Names, other: u64) -> bool {
    let (one, two) = (spin.data(address), normal.data(other));
    if one.kind != two.kind {
        return false;
    }
    // Thread numbers differ from run to run; the order of creation seldom does.
    let same_thread = |a: u32, b: u32| spin.thread_ordinal(a) == normal.thread_ordinal(b);
    match (&one.home, &two.home) {
        (
            DataHome::Heap {
                site,
                ordinal,
                size,
                offset,
            },
            DataHome::Heap {
                site: other_site,
                ordinal: other_ordinal,
                size: other_size,
                offset: other_offset,
            },
        ) => {
            (&site.module, site.offset) == (&other_site.module, other_site.offset)
                && (ordinal, size, offset) == (other_ordinal, other_size, other_offset)
        }
        (
            DataHome::Tls {
                module,
                offset,
                tid,
            },
            DataHome::Tls {
                module: other_module,
                offset: other_offset,
                tid: other_tid,
            },
        ) => (module, offset) == (other_module, other_offset) && same_thread(*tid, *other_tid),
        (
            DataHome::ThreadControl { tid, offset },
            DataHome::ThreadControl {
                tid: other_tid,
                offset: other_offset,
            },
        ) => offset == other_offset && same_thread(*tid, *other_tid),
        (
            home @ (DataHome::Module { .. } | DataHome::Mapping { .. }),
            other @ (DataHome::Module { .. } | DataHome::Mapping { .. }),
        ) => home == other,
        // One run's frames may be known and the other's not.
        (
            DataHome::Frame { .. } | DataHome::Address { .. },
            DataHome::Frame { .. } | DataHome::Address { .. },
        ) if one.kind == DataKind::Stack => {
            match (spin.stack_place(address), normal.stack_place(other)) {
                (Some((tid, below)), Some((other_tid, other_below))) => {
                    below == other_below && same_thread(tid, other_tid)
                }
                _ => false,
            }
        }
        (DataHome::Address { .. }, DataHome::Address { .. }) => {
            let place = spin.mapping_place(address);
            place.is_some() && place == normal.mapping_place(other)
        }
        _ => false,
    }
}
