//! Fornax: data sets and data loading.
