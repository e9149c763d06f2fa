//! From a ranked word to a flag with its names, in terms of the program where it can be.

use flagfinder_code::{DataKind, DataName, Names};

use crate::finder::Builder;
use crate::rank::Ranked;
use crate::report::{Addresses, Flag, FlagKind, Values, Writer};

/// Names of both runs; `normal` is absent for a live thread or a lone spin trace.
pub struct Naming<'a> {
    pub spin: &'a Names,
    pub normal: Option<&'a Names>,
}

impl Builder<'_> {
    pub(crate) fn flag(&self, ranked: &Ranked) -> Flag {
        let candidate = &self.analysis.candidates[ranked.candidate];
        let names = self.naming.spin;
        let data = names.data(candidate.address);
        let condition = self.analysis.conditions[ranked.exit].as_ref();
        let short = |address: u64| {
            if address == candidate.address {
                "value".to_string()
            } else {
                short_name(&names.data(address), address)
            }
        };
        let typed = self.through_pointer(candidate.step, candidate.address);
        let counterpart = self.outside.counterparts.get(&candidate.address);
        let bits = (candidate.bytes * 8).min(64);
        let direct = condition.filter(|c| c.mentions(candidate.address, candidate.bytes));
        // The word that the normal run left with tells nothing where another one let it go.
        let left_with = counterpart.and_then(|c| c.exit_value);
        let left_with = left_with.filter(|_| left_with != candidate.value || direct.is_none());
        let exit_value = left_with.or_else(|| {
            direct.and_then(|c| {
                c.leaving_value(candidate.address, bits, candidate.value.unwrap_or(0))
            })
        });
        let exit_when = match (direct, exit_value) {
            (Some(condition), _) => condition.text(&short),
            (None, Some(value)) => format!("value == {value:#x} (as in the normal run)"),
            (None, None) => match candidate.value {
                Some(value) => format!("value != {value:#x}"),
                None => "value changes".into(),
            },
        };
        Flag {
            rank: 0,
            confidence: (ranked.score * 100.0).round() / 100.0,
            kind: flag_kind(data.kind),
            module: data.module.clone(),
            offset: data.offset,
            symbol: data.symbol.clone(),
            field: data.field.clone().or_else(|| typed.as_ref()?.1.clone()),
            name: data.name.clone(),
            address: Addresses {
                spin: Some(candidate.address),
                normal: counterpart.and_then(|c| c.address),
            },
            size: candidate.bytes,
            value: Values {
                spin: candidate.value,
                exit: exit_value,
            },
            exit_when,
            access_path: typed
                .map(|(path, _)| path)
                .or_else(|| self.access_path(candidate.step)),
            readers: candidate.readers.iter().map(|&pc| self.code(pc)).collect(),
            writers: self.writers(candidate.address),
            evidence: ranked.evidence.clone(),
        }
    }

    fn writers(&self, address: u64) -> Vec<Writer> {
        let stores = self.outside.stores.get(&address);
        let stores = stores.map_or(&[][..], |stores| &stores[..]);
        let named = stores.iter().filter_map(|store| {
            let names = if store.normal {
                self.naming.normal?
            } else {
                self.naming.spin
            };
            Some(Writer {
                run: if store.normal { "normal" } else { "spin" }.into(),
                tid: store.tid,
                thread: names.thread_label(store.tid),
                code: names.code(store.pc),
                value: store.value,
                stack: store.stack.iter().map(|&pc| names.caller(pc)).collect(),
                count: store.count,
            })
        });
        named.collect()
    }

    /// `pool->workers[2].state` and `.workers[2].state`, when the word was reached through
    /// a variable whose type says what it points to.
    fn through_pointer(&self, step: u32, address: u64) -> Option<(String, Option<String>)> {
        let (window, names) = (self.window, self.naming.spin);
        let base = window.code(step).memory.first()?.base?;
        let start = self.analysis.spin.first_step().saturating_sub(1);
        let set = crate::decoded::general(base);
        let definition = (start..step)
            .rev()
            .find(|&s| window.code(s).writes & set != 0)?;
        let access = window.accesses(definition).iter().find(|a| !a.write)?;
        let (variable, pointer) = (access.address?, access.value.get(64)?);
        let (kind, 0) = names.type_at(variable)? else {
            return None;
        };
        let offset = address.checked_sub(pointer)?;
        let field = names.field_path(names.pointee(kind)?, offset)?;
        let symbol = short_name(&names.data(variable), variable);
        let path = match field.strip_prefix('.') {
            Some(member) => format!("{symbol}->{member}"),
            None => format!("(*{symbol}){field}"),
        };
        Some((path, Some(field).filter(|field| !field.is_empty())))
    }

    /// How the code reached the word: the pointers that were loaded to form its address.
    fn access_path(&self, step: u32) -> Option<String> {
        let window = self.window;
        let mut parts: Vec<String> = Vec::new();
        let (mut at, mut reference) = (step, window.code(step).memory.first().copied()?);
        for _ in 0..4 {
            let displacement = reference.displacement;
            let Some(base) = reference.base else { break };
            let start = self.analysis.spin.first_step().saturating_sub(1);
            let set = crate::decoded::general(base);
            let definition = (start..at)
                .rev()
                .find(|&s| window.code(s).writes & set != 0)?;
            let code = window.code(definition);
            let load = code.memory.first().filter(|m| m.read)?;
            let access = window.accesses(definition).iter().find(|a| !a.write)?;
            let address = access.address?;
            let data = self.naming.spin.data(address);
            parts.push(format!("->+{displacement:#x}"));
            if matches!(
                data.kind,
                DataKind::Global | DataKind::Tls | DataKind::Linkage
            ) {
                parts.push(short_name(&data, address));
                parts.reverse();
                return Some(parts.concat());
            }
            at = definition;
            reference = *load;
        }
        None
    }
}

pub(crate) fn short_name(data: &DataName, address: u64) -> String {
    match (&data.symbol, &data.field) {
        (Some(symbol), Some(field)) => format!("{symbol}{field}"),
        (Some(symbol), None) => symbol.clone(),
        (None, _) => match (&data.module, data.offset) {
            (Some(module), Some(offset)) => format!("[{module}+{offset:#x}]"),
            _ => format!("[{address:#x}]"),
        },
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
