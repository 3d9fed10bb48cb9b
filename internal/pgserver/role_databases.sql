-- The databases in which the role $1 owns something or has privileges. DROP OWNED works on one database at a time.
SELECT DISTINCT d.datname
FROM pg_shdepend AS s
JOIN pg_database AS d ON d.oid = s.dbid
JOIN pg_roles AS r ON r.oid = s.refobjid
WHERE s.refclassid = 'pg_authid'::regclass AND r.rolname = $1
