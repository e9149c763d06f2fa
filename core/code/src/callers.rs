// SPDX-License-Identifier: MIT
//! Who called the allocator's caller: behind `operator new` and its like stands the code
//! that wanted the object.

use flagfinder_trace::{DecodedFlow, Result};

use crate::block::Ending;
use crate::codemap::CodeMap;
use crate::heap::{Allocation, Moment};

/// Most blocks that are looked back over.
const REACH: usize = 1 << 18;
/// Most callers that are reported.
const CALLERS: usize = 8;

/// Return addresses of the calls that were open when the object was allocated, beyond the
/// allocator's caller: innermost first, and as many as were opened within reach.
///
/// # Errors
/// When the trace cannot be read.
pub fn outer_callers(code: &CodeMap, allocation: &Allocation) -> Result<Vec<u64>> {
    let mut callers = open_calls(code, allocation.moment)?;
    // Whether the allocator's own call is still open depends on the recorder.
    if callers.first() == Some(&allocation.caller) {
        callers.remove(0);
    }
    callers.truncate(CALLERS);
    Ok(callers)
}

/// Walks back from that moment: a call that no return closed is open.
fn open_calls(code: &CodeMap, moment: Moment) -> Result<Vec<u64>> {
    let mut open = Vec::new();
    let process = code.process();
    let Some(thread) = process.threads().get(moment.thread as usize) else {
        return Ok(open);
    };
    let mut decoder = thread.flow_decoder();
    let mut flow = DecodedFlow::default();
    let (mut returns, mut left) = (0u32, REACH);
    let mut end = Some(moment.block as usize);
    for section in (0..=moment.section as usize).rev() {
        decoder.decode(section, &mut flow)?;
        let blocks = &flow.blocks[..end.take().unwrap_or(usize::MAX).min(flow.blocks.len())];
        for id in blocks.iter().rev() {
            let Some(block) = code.block(*id) else {
                return Ok(open);
            };
            match block.ending {
                Ending::Return => returns += 1,
                Ending::Call { .. } | Ending::IndirectCall if returns > 0 => returns -= 1,
                Ending::Call { .. } | Ending::IndirectCall => open.push(block.end),
                _ => {}
            }
            left -= 1;
            if left == 0 || open.len() > CALLERS {
                return Ok(open);
            }
        }
        // Beyond a gap calls and returns do not balance.
        if flow.gap.is_some() {
            break;
        }
    }
    Ok(open)
}
