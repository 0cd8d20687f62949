//! Fornax: from graphs to plans: simplify, schedule, fuse, lower, plan memory.
