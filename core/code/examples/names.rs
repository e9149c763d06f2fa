// SPDX-License-Identifier: MIT
//! `names PID ADDRESS..`: what addresses of a running process are called.

use flagfinder_code::{Names, NamesInput};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let pid = arguments.next().ok_or("usage: names PID ADDRESS..")?;
    let names = Names::new(NamesInput::from_live(pid.parse()?)?);
    for text in arguments {
        let address = match u64::from_str_radix(text.trim_start_matches("0x"), 16) {
            Ok(address) => address,
            Err(_) => {
                names
                    .resolve(None, &text)
                    .first()
                    .ok_or_else(|| format!("no symbol {text}"))?
                    .0
            }
        };
        let data = names.data(address);
        println!("{address:#x}\n  data {:?}: {}", data.kind, data.name);
        println!("  code {}", serde_json::to_string(&names.code(address))?);
    }
    for note in names.notes() {
        eprintln!("note: {note}");
    }
    Ok(())
}
