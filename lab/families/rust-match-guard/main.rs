// SPDX-License-Identifier: MIT
// A cache of templates behind a read-write lock. `templates bad`: the read guard lives through the
// whole `match`, in which the cache is written to.
use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

struct Templates {
    known: RwLock<HashMap<String, Arc<str>>>,
}

impl Templates {
    fn store(&self, name: &str) -> Arc<str> {
        let made: Arc<str> = format!("<h1>{name}</h1>").into();
        self.known.write().unwrap().insert(name.to_owned(), made.clone());
        made
    }

    fn find_bad(&self, name: &str) -> Arc<str> {
        match self.known.read().unwrap().get(name) {
            Some(found) => found.clone(),
            None => self.store(name),
        }
    }

    fn find_good(&self, name: &str) -> Arc<str> {
        let found = self.known.read().unwrap().get(name).cloned();
        found.unwrap_or_else(|| self.store(name))
    }
}

fn main() {
    let bad = std::env::args().nth(1).as_deref() == Some("bad");
    let all = Arc::new(Templates { known: RwLock::new(HashMap::new()) });
    let render = |name: &'static str| {
        let all = all.clone();
        let work = move || {
            let text = if bad { all.find_bad(name) } else { all.find_good(name) };
            println!("{text}");
            thread::sleep(Duration::from_secs(100_000));
        };
        thread::Builder::new().name(name.into()).spawn(work).unwrap()
    };
    println!("begins");
    std::io::stdout().flush().unwrap();
    let first = render("index");
    thread::sleep(Duration::from_millis(200));
    let second = render("about");
    first.join().unwrap();
    second.join().unwrap();
}
