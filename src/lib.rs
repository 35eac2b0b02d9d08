//! pg_bulk: files into PostgreSQL.

::pgrx::pg_module_magic!(name, version);
