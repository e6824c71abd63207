-- What a worker and a reader are granted, part by part. Neither may write to a table: a worker
-- writes through functions that keep the rules, and a reader not at all.

-- part: schema, role: worker
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.counterfoil_schema TO {role};
-- part: schema, role: reader
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.counterfoil_schema TO {role};

-- part: store, role: worker
GRANT SELECT ON {schema}.run, {schema}.checkpoint, {schema}.state, {schema}.settled,
    {schema}.archive TO {role};
GRANT EXECUTE ON FUNCTION {schema}.put, {schema}.mark, {schema}.prune TO {role};
-- part: store, role: reader
GRANT SELECT ON {schema}.run, {schema}.checkpoint, {schema}.state, {schema}.settled,
    {schema}.archive TO {role};

-- part: heads, role: worker
GRANT SELECT ON {schema}.register, {schema}.head, {schema}.heads TO {role};
GRANT EXECUTE ON FUNCTION {schema}.create_head, {schema}.acquire, {schema}.renew,
    {schema}.advance, {schema}.release, {schema}.raise_floor, {schema}.now_ms TO {role};
-- part: heads, role: reader
GRANT SELECT ON {schema}.register, {schema}.heads TO {role};
GRANT EXECUTE ON FUNCTION {schema}.now_ms TO {role};

-- part: inbox, role: worker
GRANT SELECT ON {schema}.statement TO {role};
GRANT EXECUTE ON FUNCTION {schema}.put_statement, {schema}.discard_statement TO {role};
-- part: inbox, role: reader
GRANT SELECT ON {schema}.statement TO {role};
