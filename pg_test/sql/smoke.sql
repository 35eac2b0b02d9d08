-- CREATE EXTENSION uses the installed library, and the library loads.
LOAD 'pg_bulk';
SELECT e.extversion = v.default_version AS current, e.extrelocatable AS relocatable
FROM pg_extension e JOIN pg_available_extensions v ON v.name = e.extname
WHERE e.extname = 'pg_bulk';
