//! Reports of boards with secrets in them.
