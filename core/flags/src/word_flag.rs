// SPDX-License-Identifier: MIT
//! A word as a flag of the report: its names, values, readers and writers.

use flagfinder_code::{Code, DataKind, DataName, Names};
use iced_x86::FlowControl;

use crate::evidence::{made_by_others, Store};
use crate::naming::{short_name, Naming};
use crate::rank::Ranked;
use crate::report::{Addresses, Flag, FlagKind, Values, Writer};
use crate::report_builder::Builder;

/// Size of a futex, in bytes.
pub(crate) const FUTEX_BYTES: u32 = 4;
/// Most call sites that are reported of a reader.
const CALLERS: usize = 8;
/// Most steps in which they are looked for.
const REACH: u32 = 4000;

impl Builder<'_> {
    pub(crate) fn flag(&self, ranked: &Ranked) -> Flag {
        let candidate = &self.analysis.candidates[ranked.candidate];
        let names = self.naming.spin;
        let data = names.data(candidate.address);
        let condition = self.analysis.conditions[ranked.exit].as_ref();
        let short = |address: u64| match address == candidate.address {
            true => "value".to_string(),
            false => self.word_name(address),
        };
        let reached = self.explorer.reached(candidate.step, candidate.address);
        let field = reached.as_ref().and_then(|reached| reached.field.clone());
        let name = match &reached {
            Some(reached) if data.symbol.is_none() && field.is_some() => {
                format!("{} ({})", reached.path, data.name)
            }
            _ => data.name.clone(),
        };
        let counterpart = self.outside.counterparts.get(&candidate.address);
        let bits = (candidate.bytes * 8).min(64);
        let direct = condition.filter(|c| c.mentions(candidate.address, candidate.bytes));
        // If another word ended the loop, the value with which the normal run left says nothing
        // about this one.
        let left_with = counterpart.and_then(|c| c.exit_value);
        let left_with = left_with.filter(|_| left_with != candidate.value || direct.is_none());
        let exit_value = left_with.or_else(|| {
            direct.and_then(|c| {
                c.leaving_value(candidate.address, bits, candidate.value.unwrap_or(0))
            })
        });
        let symbol_at = |names: Option<&Names>, value: Option<u64>| {
            names.filter(|_| bits == 64)?.symbol_at(value?)
        };
        let leaves_in = left_with.map_or(Some(names), |_| self.naming.normal);
        let exit_when = match (direct, exit_value) {
            (Some(condition), _) => condition.text(&short),
            (None, Some(value)) => format!("value == {value:#x} (as in the normal run)"),
            (None, None) => match candidate.value {
                Some(value) => format!("value != {value:#x}"),
                None => "value changes".into(),
            },
        };
        Flag {
            confidence: (ranked.score * 100.0).round() / 100.0,
            module: data.module.clone(),
            offset: data.offset,
            symbol: data.symbol.clone(),
            field: data.field.clone().or(field),
            address: Addresses {
                spin: Some(candidate.address),
                normal: counterpart.and_then(|c| c.address),
            },
            size: candidate.bytes,
            value: Values {
                spin: candidate.value,
                exit: exit_value,
                spin_symbol: symbol_at(Some(names), candidate.value),
                exit_symbol: symbol_at(leaves_in, exit_value),
            },
            exit_when,
            access_path: reached.map(|reached| reached.path),
            readers: candidate.readers.iter().map(|&pc| self.code(pc)).collect(),
            reader_stack: self.reader_stack(candidate.step),
            writers: self.writers(candidate.address, counterpart.and_then(|c| c.address)),
            evidence: ranked.signs.evidence().collect(),
            ..Flag::new(flag_kind(data.kind), name)
        }
    }

    /// A word's name within a text. Where it is no variable's: the path by which the code reached
    /// it.
    pub(crate) fn word_name(&self, address: u64) -> String {
        let data = self.naming.spin.data(address);
        let mut candidates = self.analysis.candidates.iter();
        let other = candidates.find(|other| other.address == address && data.symbol.is_none());
        let reached = other.and_then(|other| self.explorer.reached(other.step, address));
        let reached = reached.filter(|reached| reached.field.is_some());
        reached.map_or_else(|| short_name(&data, address), |reached| reached.path)
    }

    /// The calls within the loop that led to the step.
    fn reader_stack(&self, step: u32) -> Vec<Code> {
        let outermost = self.window.rsp(self.analysis.spin.first_step());
        let mut stack = Vec::new();
        let mut frame = self.window.rsp(step);
        for at in (step.saturating_sub(REACH)..step).rev() {
            if frame == 0 || frame >= outermost || stack.len() == CALLERS {
                break;
            }
            let call = &self.window.code(at).instruction;
            let flow = call.flow_control();
            let is_call = matches!(flow, FlowControl::Call | FlowControl::IndirectCall);
            if is_call && self.window.rsp(at) > frame {
                stack.push(self.naming.spin.caller(call.next_ip()));
                frame = self.window.rsp(at);
            }
        }
        stack
    }

    fn writers(&self, address: u64, there: Option<u64>) -> Vec<Writer> {
        let stores = self.outside.stores.get(&address);
        writers(self.naming, stores.map_or(&[][..], Vec::as_slice), there)
    }
}

/// The stores as the report tells them; `there`: the word's address in the normal run.
pub(crate) fn writers(naming: &Naming, stores: &[Store], there: Option<u64>) -> Vec<Writer> {
    let by_others = made_by_others(stores, there);
    let named = stores.iter().zip(by_others).filter_map(|(store, foreign)| {
        let names = if store.normal {
            naming.normal?
        } else {
            naming.spin
        };
        Some(Writer {
            run: if store.normal { "normal" } else { "spin" }.into(),
            tid: store.tid,
            thread: names.thread_label(store.tid),
            code: names.code(store.pc),
            value: store.value,
            stack: store.stack.iter().map(|&pc| names.caller(pc)).collect(),
            count: store.count,
            foreign,
        })
    });
    named.collect()
}

/// A futex's word at which a thread sleeps, without evidence: `address` and `value` as far as they
/// are known, `exit_when` what ends the wait.
pub(crate) fn futex_flag(
    data: DataName,
    address: Addresses,
    value: Values,
    exit_when: String,
) -> Flag {
    Flag {
        module: data.module,
        offset: data.offset,
        symbol: data.symbol,
        field: data.field,
        address,
        size: FUTEX_BYTES,
        value,
        exit_when,
        ..Flag::new(flag_kind(data.kind), data.name)
    }
}

fn flag_kind(kind: DataKind) -> FlagKind {
    match kind {
        DataKind::Global | DataKind::ReadOnly | DataKind::Linkage | DataKind::Code => {
            FlagKind::Global
        }
        DataKind::Tls | DataKind::ThreadControl => FlagKind::Tls,
        DataKind::Stack => FlagKind::Stack,
        DataKind::Shared | DataKind::File => FlagKind::Shared,
        DataKind::Heap | DataKind::Anonymous | DataKind::Kernel | DataKind::Unknown => {
            FlagKind::Heap
        }
    }
}
