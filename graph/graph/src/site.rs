// SPDX-License-Identifier: MIT
//! What the text of a call site tells: its function, its line, whose code it is.

/// Each site of Python code holds this, and no other site does.
pub(crate) const PYTHON_SITE: &str = " (python ";
/// The same of the kernel's.
pub(crate) const KERNEL_SITE: &str = " (kernel)";

/// Modules that make calls for others.
const SERVANTS: [&str; 4] = ["(libc.so", "(ld-linux", "(libpthread", "([vdso]"];

/// A call site without its place in the function: `wait_for+0x31 (app+0x1231) at app.c:7` is
/// `wait_for (app)`.
pub(crate) fn function(site: &str) -> String {
    let Some((symbol, module)) = site.split_once(" (") else {
        return site.to_owned();
    };
    let symbol = symbol.rsplit_once("+0x").map_or(symbol, |(name, _)| name);
    let module = module.split(['+', ')']).next().unwrap_or(module);
    format!("{symbol} ({module})")
}

/// The source line of a call site, where that is known: `app.c:7`.
pub(crate) fn line(site: &str) -> Option<&str> {
    site.rsplit_once(") at ").map(|(_, line)| line)
}

/// The site of the innermost Python function, else the innermost one that is not the C library's,
/// else the innermost; none of the kernel's.
pub(crate) fn site_of<'s>(stack: impl Iterator<Item = &'s str> + Clone) -> Option<&'s str> {
    let is_servant = |site: &str| {
        let mut all = SERVANTS.iter();
        all.any(|servant| site.contains(servant) || site.starts_with(&servant[1..]))
    };
    let stack = stack.filter(|site| !site.ends_with(KERNEL_SITE));
    let python = stack.clone().find(|site| site.contains(PYTHON_SITE));
    let own = stack.clone().find(|site| !is_servant(site));
    python.or(own).or(stack.clone().next())
}

/// The function of that site; empty for no stack.
pub(crate) fn code_of<'s>(stack: impl Iterator<Item = &'s String> + Clone) -> String {
    site_of(stack.map(String::as_str)).map_or(String::new(), function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_code_goes_before_its_interpreter() {
        let stack = [
            "read+0x10 (libc.so.6+0x5)",
            "_PyEval_EvalFrameDefault+0x7 (python3.11+0x9)",
            "Job.run (python job.py:12)",
            "main (python job.py:40)",
        ];
        let stack = stack.map(str::to_owned);
        let code = |sites: &[String]| code_of(sites.iter());
        assert_eq!(code(&stack), "Job.run (python job.py:12)");
        assert_eq!(code(&stack[..2]), "_PyEval_EvalFrameDefault (python3.11)");
        assert_eq!(code(&stack[..1]), "read (libc.so.6)");
    }

    #[test]
    fn sites_become_functions() {
        let cases = [
            (
                "wait_for+0x31 (app+0x1231) at app.c:7",
                "wait_for (app)",
                Some("app.c:7"),
            ),
            (
                "ns::f(int)+0x5 (libx.so+0x77)",
                "ns::f(int) (libx.so)",
                None,
            ),
            ("app+0x1231", "app+0x1231", None),
        ];
        for (site, expected, at) in cases {
            assert_eq!((function(site), line(site)), (expected.to_owned(), at));
        }
    }
}
