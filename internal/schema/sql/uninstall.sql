-- Drops schema {{ident .Schema}} if {{.Name}} was installed there.
do $annals_uninstall$
declare
    {{template "declare" .}}
begin
    {{template "begin" .}}

    if to_regnamespace({{literal (ident .Schema)}}) is not null then
        if to_regclass({{literal (ident .Schema "annals_step")}}) is null then
            installed_package := '';
        else
            select max(s.package) into installed_package from {{ident .Schema "annals_step"}} as s;
        end if;
        {{template "refuse foreign" .}}
        drop schema {{ident .Schema}} cascade;
    end if;

    {{template "end" .}}
end
$annals_uninstall$;
