// SPDX-License-Identifier: MIT
//! The instructions that a watch hooks.

use crate::naming::Naming;
use crate::protocol::SITE_MAX;
use crate::request::Request;
use crate::site::Site;
use crate::source::Helper;
use crate::{Failure, Result, NOTHING_CHANGED};

/// Refuses instructions for backends that can hook none.
pub fn refuse_sites(request: &Request, helper: Helper) -> Result<()> {
    if helper.hooks() || request.sites.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(
        "Instructions can't be hooked",
        format!("the backend is {}, which watches words only", helper.name()),
        "Add --backend perf, or name a word instead of --site and --all-objects.",
        NOTHING_CHANGED,
    ))
}

/// Each of the request's instructions, once.
pub fn find_sites(request: &Request, naming: &Naming) -> Result<Vec<Site>> {
    let mut sites: Vec<Site> = Vec::new();
    for site in &request.sites {
        let found = Site::find(site, &naming.names, &naming.memory)?;
        if sites.iter().all(|known| known.ip != found.ip) {
            sites.push(found);
        }
    }
    if sites.len() > SITE_MAX {
        return Err(Failure::usage(
            "There are too many instructions to hook",
            format!("{} were asked for, {SITE_MAX} can be hooked", sites.len()),
            "Name the ones that matter with --site.",
            NOTHING_CHANGED,
        ));
    }
    Ok(sites)
}
