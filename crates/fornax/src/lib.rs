//! Fornax: a deep learning framework that trains and serves from one program.
