// SPDX-License-Identifier: MIT
//! Where modules' static thread-local blocks lie below fs_base.
//!
//! x86-64 uses variant II of Drepper's "ELF Handling For Thread-Local Storage": the
//! executable's block ends at fs_base, the blocks of the libraries loaded with it
//! follow downwards. Blind spot: a library loaded later may have a dynamic block
//! instead; only the dtv, which must be read from the process, knows.

use crate::image::TlsSegment;

/// Distance of each module's block start below fs_base, in load order; `None` for
/// modules without one. As glibc's `_dl_determine_tlsoffset` lays them out.
pub(crate) fn static_layout(modules: &[Option<TlsSegment>]) -> Vec<Option<u64>> {
    let mut offset = 0u64;
    // A gap that alignment left, which later small blocks may use.
    let (mut free_top, mut free_bottom) = (0u64, 0u64);
    let place = |from: u64, tls: &TlsSegment| {
        let first = tls.start.wrapping_neg() & (tls.align - 1);
        let raw = from.checked_add(tls.bytes)?.saturating_sub(first);
        raw.checked_next_multiple_of(tls.align)?.checked_add(first)
    };
    let mut layout = Vec::with_capacity(modules.len());
    for module in modules {
        let usable = module.filter(|tls| tls.align.is_power_of_two());
        let Some(tls) = usable else {
            layout.push(None);
            continue;
        };
        if free_bottom.saturating_sub(free_top) >= tls.bytes {
            if let Some(end) = place(free_top, &tls).filter(|&end| end <= free_bottom) {
                free_top = end;
                layout.push(Some(end));
                continue;
            }
        }
        let Some(end) = place(offset, &tls) else {
            layout.push(None);
            continue;
        };
        if end.saturating_sub(offset).saturating_sub(tls.bytes)
            > free_bottom.saturating_sub(free_top)
        {
            free_top = offset;
            free_bottom = end.saturating_sub(tls.bytes);
        }
        offset = end;
        layout.push(Some(end));
    }
    layout
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(bytes: u64, align: u64) -> Option<TlsSegment> {
        Some(TlsSegment {
            start: 0x1000,
            bytes,
            align,
        })
    }

    #[test]
    fn blocks_follow_downwards() {
        let layout = static_layout(&[tls(4, 4), None, tls(0x80, 8), tls(8, 8)]);
        assert_eq!(layout, [Some(4), None, Some(0x88), Some(0x90)]);
    }

    #[test]
    fn a_gap_left_by_alignment_is_filled() {
        let layout = static_layout(&[tls(4, 4), tls(0x40, 64), tls(8, 8)]);
        assert_eq!(layout, [Some(4), Some(0x80), Some(0x10)]);
    }

    #[test]
    fn damaged_headers_are_passed_over() {
        assert_eq!(static_layout(&[tls(4, 3), tls(u64::MAX, 8)]), [None, None]);
    }
}
