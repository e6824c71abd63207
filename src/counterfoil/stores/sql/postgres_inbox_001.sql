-- Signed statements in order of arrival. Run ids are UTF-8 bytes: every text is kept, and
-- bytes are in order of code points.
CREATE TABLE {schema}.statement (
    number    bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    run_id    bytea  NOT NULL,
    sha256    bytea  NOT NULL CHECK (octet_length(sha256) = 32),
    statement bytea  NOT NULL,
    UNIQUE (run_id, sha256)
);

-- Every write waits for locks so long and no longer, and is durable when it is answered,
-- whatever the database or the role has set. Both end with the transaction.
CREATE OR REPLACE FUNCTION {schema}.begin_write() RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM set_config('lock_timeout', '5000', true);
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$body$;

CREATE FUNCTION {schema}.put_statement(run bytea, digest bytea, content bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
BEGIN
    PERFORM begin_write();
    INSERT INTO statement (run_id, sha256, statement) VALUES (run, digest, content)
    ON CONFLICT (run_id, sha256) DO NOTHING;
    RETURN FOUND;
END
$body$;

CREATE FUNCTION {schema}.discard_statement(run bytea, digest bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
BEGIN
    PERFORM begin_write();
    DELETE FROM statement WHERE run_id = run AND sha256 = digest;
    RETURN FOUND;
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    RAISE EXCEPTION '% of % is never done', TG_OP, TG_TABLE_NAME USING ERRCODE = 'CF009';
END
$body$;

CREATE TRIGGER stays BEFORE UPDATE OR TRUNCATE ON {schema}.statement
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();

-- Ring for workers that wait: a run has news.
CREATE OR REPLACE FUNCTION {schema}.ring() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    PERFORM pg_notify('counterfoil ' || TG_TABLE_SCHEMA, '');
    RETURN NULL;
END
$body$;

CREATE TRIGGER ring_arrived AFTER INSERT ON {schema}.statement
    FOR EACH ROW EXECUTE FUNCTION {schema}.ring();

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
