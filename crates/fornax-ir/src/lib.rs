//! Fornax: dtypes, shapes, the primitive op set, graphs, and the reference interpreter.
