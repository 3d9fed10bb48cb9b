{{define "declare" -}}
    -- Settings that the script pins, and what they were.
    setting_names constant pg_catalog.text[] := '{search_path, check_function_bodies, client_min_messages, lock_timeout}';
    setting_values constant pg_catalog.text[] := '{"pg_catalog, pg_temp", on, warning, 1s}';
    saved_values pg_catalog.text[] := '{}';
    installed_version pg_catalog.int4;
    installed_package pg_catalog.text;
{{- end}}

{{define "begin" -}}
    -- The lock comes first: one installer may wait for another as long as it takes.
    perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended({{literal (print "annals schema " .Schema)}}, 0));
    for i in 1 .. pg_catalog.cardinality(setting_names) loop
        saved_values[i] := pg_catalog.current_setting(setting_names[i]);
        perform pg_catalog.set_config(setting_names[i], setting_values[i], true);
    end loop;
{{- end}}

{{define "end" -}}
    for i in 1 .. cardinality(setting_names) loop
        perform pg_catalog.set_config(setting_names[i], saved_values[i], true);
    end loop;
{{- end}}

{{define "refuse foreign" -}}
        if installed_package <> {{literal .Name}} then
            raise exception using
                errcode = 'SI002',
                message = {{literal (print "schema " (ident .Schema) " was not installed by " .Name)}},
                hint = 'It belongs to somebody else. Rename it if ' || {{literal .Name}} || ' is to use that name.';
        end if;
{{- end}}
