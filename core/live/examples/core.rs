// SPDX-License-Identifier: MIT
//! The report of a core file, as JSON: `core FILE`.

use std::path::Path;
use std::time::Duration;

use flagfinder_live::{look_at_core, CoreOptions};
use flagfinder_replica::{CoreFile, Files};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("core FILE")?;
    let core = CoreFile::open(Path::new(&path), Files::default())?;
    let budget = Duration::from_secs(5);
    let options = CoreOptions {
        threads: Vec::new(),
        budget,
    };
    let report = look_at_core(&core, &options)?;
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
