-- All objects of extension pg_bulk in this database, one a line, without OIDs: if two databases have the
-- same lines, they have the same extension. Definitions have several lines, so they are written as JSON strings.
WITH RECURSIVE
objects (classid, objid, objsubid) AS (
    SELECT d.classid, d.objid, d.objsubid
    FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
    WHERE e.extname = 'pg_bulk' AND d.deptype = 'e'
  UNION
    -- Indexes, constraints, triggers, rules, row types: objects that depend on a member.
    SELECT d.classid, d.objid, 0
    FROM objects o JOIN pg_depend d ON d.refclassid = o.classid AND d.refobjid = o.objid
    WHERE d.deptype IN ('i', 'a', 'P', 'S')
),
relations AS (
    SELECT c.* FROM pg_class c JOIN objects o ON o.classid = 'pg_class'::regclass AND o.objid = c.oid AND o.objsubid = 0
),
rights (name, acl) AS (
    SELECT oid::regclass::text, relacl FROM relations
    UNION ALL SELECT c.oid::regclass || '.' || a.attname, a.attacl FROM relations c JOIN pg_attribute a ON a.attrelid = c.oid
    UNION ALL SELECT p.oid::regprocedure::text, p.proacl
        FROM pg_proc p JOIN objects o ON o.classid = 'pg_proc'::regclass AND o.objid = p.oid
    UNION ALL SELECT 'wrapper ' || w.fdwname, w.fdwacl
        FROM pg_foreign_data_wrapper w JOIN objects o ON o.classid = 'pg_foreign_data_wrapper'::regclass AND o.objid = w.oid
    UNION ALL SELECT 'server ' || s.srvname, s.srvacl
        FROM pg_foreign_server s JOIN objects o ON o.classid = 'pg_foreign_server'::regclass AND o.objid = s.oid
),
lines (line) AS (
    SELECT format('extension: %s in %s, relocatable %s', extversion, extnamespace::regnamespace, extrelocatable)
    FROM pg_extension WHERE extname = 'pg_bulk'
  UNION ALL
    SELECT format('dumped: %s %s', t.oid::regclass, to_json(e.extcondition[t.at]))
    FROM pg_extension e, unnest(e.extconfig) WITH ORDINALITY t (oid, at) WHERE e.extname = 'pg_bulk'
  UNION ALL
    SELECT 'object: ' || pg_describe_object(classid, objid, objsubid) FROM objects
  UNION ALL
    SELECT format('dependency: %s on %s, %s', pg_describe_object(d.classid, d.objid, d.objsubid),
        pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid), d.deptype)
    FROM pg_depend d WHERE EXISTS (SELECT FROM objects o WHERE o.classid = d.classid AND o.objid = d.objid)
  UNION ALL
    SELECT format('dependency: %s on %s, %s', pg_describe_object(d.classid, d.objid, d.objsubid),
        pg_describe_object(d.refclassid, d.refobjid, 0), d.deptype)
    FROM pg_shdepend d JOIN objects o ON o.classid = d.classid AND o.objid = d.objid
    WHERE d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  UNION ALL
    SELECT format('comment: %s: %s', pg_describe_object(d.classoid, d.objoid, d.objsubid), to_json(d.description))
    FROM pg_description d WHERE EXISTS (SELECT FROM objects o WHERE o.classid = d.classoid AND o.objid = d.objoid)
  UNION ALL
    SELECT format('right: %s: %s', name, acl) FROM (SELECT name, unnest(acl)::text FROM rights) r (name, acl)
  UNION ALL
    SELECT format('right of the extension: %s: %s', pg_describe_object(i.classoid, i.objoid, i.objsubid), acl)
    FROM pg_init_privs i, unnest(i.initprivs) acl
    WHERE EXISTS (SELECT FROM objects o WHERE o.classid = i.classoid AND o.objid = i.objoid)
  UNION ALL
    SELECT format('function: %s, cost %s, rows %s: %s', p.oid::regprocedure, p.procost, p.prorows, to_json(pg_get_functiondef(p.oid)))
    FROM pg_proc p JOIN objects o ON o.classid = 'pg_proc'::regclass AND o.objid = p.oid
  UNION ALL
    SELECT format('relation: %s: %s, %s, replica identity %s, row security %s, options %s, method %s', c.oid::regclass, c.relkind,
        c.relpersistence, c.relreplident, c.relrowsecurity, c.reloptions, (SELECT amname FROM pg_am WHERE oid = c.relam))
    FROM relations c
  UNION ALL
    SELECT format('column: %s.%s: %s, %s, not null %s, default %s, storage %s, compression %s, collation %s, identity %s, generated %s, options %s',
        c.oid::regclass, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull,
        pg_get_expr(d.adbin, d.adrelid), a.attstorage, a.attcompression, a.attcollation::regcollation, a.attidentity, a.attgenerated,
        -- From 15.20 on, minor releases number the versions of a column.
        (SELECT array_agg(option) FROM unnest(a.attoptions) option WHERE option NOT LIKE 'pg\_attver=%'))
    FROM relations c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE a.attnum > 0
  UNION ALL
    SELECT format('constraint: %s.%s: %s', c.oid::regclass, k.conname, pg_get_constraintdef(k.oid))
    FROM relations c JOIN pg_constraint k ON k.conrelid = c.oid
  UNION ALL
    SELECT format('index: %s, valid %s', pg_get_indexdef(i.indexrelid), i.indisvalid)
    FROM relations c JOIN pg_index i ON i.indrelid = c.oid WHERE c.relkind = 'r'
  UNION ALL
    SELECT format('trigger: %s, enabled %s', pg_get_triggerdef(t.oid), t.tgenabled)
    FROM relations c JOIN pg_trigger t ON t.tgrelid = c.oid
  UNION ALL
    SELECT format('view: %s: %s', c.oid::regclass, to_json(pg_get_viewdef(c.oid))) FROM relations c WHERE c.relkind = 'v'
  UNION ALL
    SELECT format('sequence: %s: %s', c.oid::regclass, to_jsonb(s) - 'seqrelid')
    FROM relations c JOIN pg_sequence s ON s.seqrelid = c.oid
  UNION ALL
    SELECT format('wrapper: %s, %s, %s, %s', fdwname, fdwhandler::regproc, fdwvalidator::regproc, fdwoptions)
    FROM pg_foreign_data_wrapper w JOIN objects o ON o.classid = 'pg_foreign_data_wrapper'::regclass AND o.objid = w.oid
  UNION ALL
    SELECT format('server: %s, %s, %s, %s, %s', srvname, (SELECT fdwname FROM pg_foreign_data_wrapper WHERE oid = srvfdw), srvtype, srvversion,
        srvoptions)
    FROM pg_foreign_server s JOIN objects o ON o.classid = 'pg_foreign_server'::regclass AND o.objid = s.oid
)
SELECT regexp_replace(line, 'pg_toast_\d+', 'pg_toast_N', 'g') AS line FROM lines ORDER BY line COLLATE "C";
