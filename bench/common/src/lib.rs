//! Line protocol shared by every Rust peer.  The runner writes one command per line:
//!   setup NAME   -> "ok" | "na REASON"
//!   time N       -> N per-iteration times in ns, comma separated
//!   rss          -> VmRSS and VmHWM in KiB, comma separated
//!   extra        -> what the peer has to say about the work since the last `extra` (counters), on one line
//!   drop / quit
use std::io::{BufRead, Write};
use std::time::Instant;

pub type Case = Box<dyn FnMut()>;

fn vm(key: &str) -> u64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    s.lines()
        .find(|l| l.starts_with(key))
        .and_then(|l| l.split_whitespace().nth(1))
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}

pub fn serve(make: impl Fn(&str) -> Option<Case>) {
    serve_with(make, String::new);
}

/// As [`serve`], with an answer to `extra`.
pub fn serve_with(make: impl Fn(&str) -> Option<Case>, mut extra: impl FnMut() -> String) {
    let stdin = std::io::stdin();
    let mut out = std::io::stdout();
    let mut case: Option<Case> = None;
    for line in stdin.lock().lines() {
        let line = line.expect("stdin");
        let mut it = line.split_whitespace();
        let reply = match it.next() {
            Some("setup") => {
                case = None;
                let name = it.next().unwrap_or("").to_string();
                let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let mut c = make(&name);
                    if let Some(c) = c.as_mut() {
                        c();
                    }
                    c
                }));
                match made {
                    Ok(Some(c)) => {
                        case = Some(c);
                        "ok".to_string()
                    }
                    Ok(None) => "na not implemented".to_string(),
                    Err(_) => "na panicked".to_string(),
                }
            }
            Some("time") => {
                let n: usize = it.next().and_then(|v| v.parse().ok()).unwrap_or(1);
                match case.as_mut() {
                    None => "na".to_string(),
                    Some(c) => {
                        let mut v = Vec::with_capacity(n);
                        for _ in 0..n {
                            let t = Instant::now();
                            c();
                            v.push(t.elapsed().as_nanos().to_string());
                        }
                        v.join(",")
                    }
                }
            }
            Some("rss") => format!("{},{}", vm("VmRSS:"), vm("VmHWM:")),
            Some("extra") => extra(),
            Some("drop") => {
                case = None;
                "ok".to_string()
            }
            _ => return,
        };
        writeln!(out, "{reply}").and_then(|_| out.flush()).expect("stdout");
    }
}
