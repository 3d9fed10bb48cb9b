-- Installs {{.Name}} in schema {{ident .Schema}}, or upgrades it to version {{.Version}}.
--
-- This is one statement, so it takes effect as a whole or not at all. It can be
-- applied again: steps that are there already are left out.
do $annals_install$
declare
    {{template "declare" .}}
begin
    {{template "begin" .}}

    if to_regnamespace({{literal (ident .Schema)}}) is null then
        create schema {{ident .Schema}};
        comment on schema {{ident .Schema}} is {{literal (print "Objects of package " .Name " of annals")}};
        create table {{ident .Schema "annals_step"}} (
            version int primary key check (version > 0),
            name text not null,
            package text not null,
            applied_at timestamptz not null default clock_timestamp()
        );
        comment on table {{ident .Schema "annals_step"}} is {{literal (print "Steps by which package " .Name " was installed and upgraded")}};
        comment on column {{ident .Schema "annals_step" "version"}} is 'Number of the step. The highest is the version that is installed';
        comment on column {{ident .Schema "annals_step" "name"}} is 'What the step is called in the package''s source';
        comment on column {{ident .Schema "annals_step" "package"}} is 'Package that this schema belongs to';
        comment on column {{ident .Schema "annals_step" "applied_at"}} is 'When the step was applied';
    elsif to_regclass({{literal (ident .Schema "annals_step")}}) is null then
        installed_package := '';
        {{template "refuse foreign" .}}
    else
        select max(s.version), max(s.package) into installed_version, installed_package
          from {{ident .Schema "annals_step"}} as s;
        {{template "refuse foreign" .}}
        if installed_version > {{.Version}} then
            raise exception using
                errcode = 'SI001',
                message = {{literal .Name}} || ' is installed as version ' || installed_version || ', and this program knows only version {{.Version}}',
                detail = installed_version,
                hint = 'Use a program that knows the installed version.';
        end if;
    end if;
    installed_version := coalesce(installed_version, 0);
{{range .Steps}}
    if installed_version < {{.Version}} then
        -- Where another installer's work is invisible to an old snapshot, this is
        -- a serialization failure.
        insert into {{ident $.Schema "annals_step"}} (version, name, package)
        values ({{.Version}}, {{literal .Name}}, {{literal $.Name}}) on conflict (version) do nothing;
        perform pg_catalog.set_config('search_path', {{literal (print (ident $.Schema) ", pg_temp")}}, true);
        execute {{.Tag}}{{.SQL}}{{.Tag}};
        perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    end if;
{{end}}
    {{template "end" .}}
end
$annals_install$;
