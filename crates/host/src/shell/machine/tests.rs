//! Random histories of a shell, against a model.
