//! Fornax: modules, losses, initializers, optimizers and schedules.
