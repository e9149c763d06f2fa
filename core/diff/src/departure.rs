// SPDX-License-Identifier: MIT
//! How a thread came to a loop that the normal runs never came to.

use flagfinder_code::times;

use crate::call_stack::FrameKind;
use crate::compare::{Side, LEVELS};
use crate::divergence::{ContextMatch, PartingKind};
use crate::part::{describe_context, Case, Found};
use crate::space::NO_PLACE;

impl Case<'_> {
    /// The normal runs never came to the loop: the last branch that led away from what they do.
    pub(crate) fn before_loop(&self) -> Found {
        // The innermost call that any thread made in this context comes before looser matches.
        for levels in [&LEVELS[..2], &LEVELS[2..3], &LEVELS[3..]] {
            for frame in (0..=self.held.frame).rev() {
                let Some(target) = self.chain[frame] else {
                    break;
                };
                for &(level, factor) in levels {
                    let side = self.side(level, target);
                    if side.all.frames > 0 {
                        return self.departure(frame, target, level, factor, &side);
                    }
                }
            }
        }
        Found {
            kind: PartingKind::OnlyInSpin,
            frame: 0,
            branch: None,
            normal_target: NO_PLACE,
            spin_target: NO_PLACE,
            others: Vec::new(),
            context: ContextMatch::None,
            normal: None,
            normal_loop: None,
            confidence: 0.3,
            why: vec![
                self.describe_held(),
                "no normal run made any of the open calls".to_string(),
            ],
        }
    }

    fn departure(
        &self,
        frame: usize,
        target: u32,
        context: ContextMatch,
        factor: f64,
        side: &Side,
    ) -> Found {
        let mut why = vec![self.describe_held(), describe_context(context)];
        let nodes = side.nodes();
        let mut found = Found {
            kind: if frame == self.held.frame {
                PartingKind::PathToLoop
            } else {
                PartingKind::PathToCall
            },
            frame,
            branch: None,
            normal_target: NO_PLACE,
            spin_target: NO_PLACE,
            others: Vec::new(),
            context,
            normal: side.threads.first().copied(),
            normal_loop: None,
            confidence: 0.0,
            why: Vec::new(),
        };
        let inner = self.open.get(frame + 1).filter(|_| frame < self.held.frame);
        if let Some(inner) =
            inner.filter(|inner| nodes.contains(&inner.call_site) && inner.kind == FrameKind::Call)
        {
            let usual = side
                .all
                .callees
                .iter()
                .filter(|((site, function, _), _)| {
                    *site == inner.call_site && *function != inner.function
                })
                .max_by_key(|(key, count)| (**count, **key));
            if let Some(((_, _, entry), count)) = usual {
                why.push(format!(
                    "the normal run made this call {}, to another function",
                    times(*count)
                ));
                found.kind = PartingKind::Callee;
                found.branch = Some(inner.call_site);
                found.normal_target = *entry;
                found.spin_target = inner.entry;
                found.confidence = 0.8 * factor;
                found.why = why;
                return found;
            }
        }
        // The last edge by which the spinning thread left the normal runs' graph in this call.
        let until = inner.map_or(self.held.entered, |inner| inner.entered);
        let last = self.final_profile(target).and_then(|profile| {
            profile
                .edges
                .iter()
                .filter(|(edge, facts)| {
                    nodes.contains(&edge.0)
                        && self.decides(edge.0)
                        && !side.all.edges.contains_key(*edge)
                        && facts.first <= until
                })
                .max_by_key(|(edge, facts)| (facts.last.min(until), **edge))
        });
        if let Some((&(branch, spin_target), _)) = last {
            let usual = side
                .all
                .edges
                .iter()
                .filter(|(edge, _)| edge.0 == branch)
                .max_by_key(|(edge, facts)| (facts.count, **edge));
            found.branch = Some(branch);
            found.spin_target = spin_target;
            found.normal_target = usual.map_or(NO_PLACE, |(edge, _)| edge.1);
            found.confidence = 0.8 * factor;
            why.push(format!(
                "the normal run made this call {} and never came to {}; at this branch it always \
                 went the other way",
                times(side.all.frames),
                if frame == self.held.frame {
                    "the loop"
                } else {
                    "the call that leads to the loop"
                }
            ));
        } else {
            found.confidence = 0.3 * factor;
            why.push(
                "the normal run made this call, but it was no branch that left it".to_string(),
            );
        }
        found.why = why;
        found
    }
}
