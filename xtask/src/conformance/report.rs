//! What became of the cases: by operator, by group, in all.

use super::manifest::Case;
use conformance::Outcome;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

/// How much of a report is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// What is wrong, the groups and the total.
    Short,
    /// A line for each operator, too.
    Ops,
}

/// Numbers of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Right.
    pub passed: usize,
    /// Wrong.
    pub failed: usize,
    /// Without an op to run them.
    pub missing: usize,
}

/// The cases that a method of `Tensor` ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct Method {
    /// What became of them.
    pub counts: Counts,
    /// Primitives that the device left to the interpreter.
    pub interpreted: u64,
}

/// Counts of a run on one device, and its failures.
pub struct Report {
    device: String,
    failures: Vec<String>,
    /// By suite and operator.
    ops: BTreeMap<(String, String), Counts>,
    /// By suite and group.
    groups: BTreeMap<(String, String), Counts>,
    /// By the method that ran them.
    methods: BTreeMap<&'static str, Method>,
}

impl Report {
    /// Nothing has run on `device`.
    pub fn new(device: &str) -> Report {
        Report {
            device: device.to_string(),
            failures: Vec::new(),
            ops: BTreeMap::new(),
            groups: BTreeMap::new(),
            methods: BTreeMap::new(),
        }
    }

    /// Counts a case of an operator (module, optimizer, schedule), for the group it is counted under.
    pub fn add(&mut self, suite: &str, id: &str, (op, group): (&str, &str), outcome: Outcome) -> Counts {
        let one = match outcome {
            Outcome::Passed => Counts { passed: 1, ..Counts::default() },
            Outcome::Missing => Counts { missing: 1, ..Counts::default() },
            Outcome::Failed(why) => {
                self.failures.push(format!("FAILED {suite} {id} on {}: {op}: {why}", self.device));
                Counts { failed: 1, ..Counts::default() }
            }
        };
        *self.ops.entry((suite.to_string(), op.to_string())).or_default() += one;
        *self.groups.entry((suite.to_string(), group.to_string())).or_default() += one;
        one
    }

    /// Counts a case that `method` ran, and the primitives in it that the device left to the interpreter.
    pub fn add_run(&mut self, suite: &str, case: &Case, method: &'static str, interpreted: u64, outcome: Outcome) {
        let one = self.add(suite, &case.id, (&case.op, &case.group), outcome);
        let method = self.methods.entry(method).or_default();
        method.counts += one;
        method.interpreted += interpreted;
    }

    /// Whether no case was run.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// All cases.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for &counts in self.groups.values() {
            total += counts;
        }
        total
    }

    /// The cases that a method of `Tensor` ran.
    pub fn of_method(&self, name: &str) -> Option<Method> {
        self.methods.get(name).copied()
    }

    /// A line for each operator (if asked for), each failing case, each missing operator and each group; the total last.
    pub fn print(&self, detail: Detail) {
        if detail == Detail::Ops {
            for ((suite, op), counts) in &self.ops {
                println!("{suite} {op}: {counts}");
            }
        }
        for failure in &self.failures {
            println!("{failure}");
        }
        for ((suite, op), counts) in self.ops.iter().filter(|(_, counts)| counts.missing > 0) {
            println!("MISSING {suite} {op} ({} cases)", counts.missing);
        }
        for ((suite, group), counts) in &self.groups {
            println!("{suite}/{group}: {counts} on {}", self.device);
        }
        println!("{}", self.total());
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.missing += other.missing;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} missing", self.passed, self.failed, self.missing)
    }
}
