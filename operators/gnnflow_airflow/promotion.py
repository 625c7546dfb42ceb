"""A person's approval before a better model goes into service, by Airflow's human-in-the-loop tasks.

`publish` compared the new version with the champion and left it as the candidate (`publish.approval`). The request
shows that comparison. An approval promotes the version; a rejection stands in the model's history, so that no later run
asks for this version again. After it, or without an answer in time, the tasks that follow go on with the champion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator, Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from gnnflow.graph.labels import is_bound
from gnnflow_airflow.connected import connected
from gnnflow_airflow.reasons import keep_reason

if TYPE_CHECKING:
    from airflow.sdk import Context

    from gnnflow_airflow.model_file import Approval

_PUBLISH = "publish"
_WHY = "why"


class PromotionApproval(ApprovalOperator):  # type: ignore[misc,unused-ignore] # Any where Airflow is not installed
    """Ask a person whether the version that `publish` left as the candidate goes into service.

    Skipped, and with it the promotion, if the version is not better, stands rejected or is in service already.
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "config")

    def __init__(
        self,
        *,
        asked: Approval,
        config: str,
        mails: Sequence[Any] = (),
        dask_conn_id: str | None = None,
        storage_conn_id: str | None = None,
        **options: Any,
    ) -> None:
        wait = None if asked.hours is None else timedelta(hours=asked.hours)
        why = Param("", type=["null", "string"], title="Why", description="For the model's history, if you reject it.")
        options.setdefault("params", {})[_WHY] = why  # the DAG has params too
        super().__init__(
            subject="Promote the new version?",
            defaults=self.REJECT if wait else None,
            response_timeout=wait,
            assigned_users=[{"id": user, "name": user} for user in asked.users] or None,
            execution_timeout=None,
            **options,
        )
        self.config = config
        self.mails = list(mails)
        self.dask_conn_id = dask_conn_id
        self.storage_conn_id = storage_conn_id

    def execute(self, context: Context) -> Any:
        """Show the comparison and wait for the answer."""
        published = _published(context)
        if not published["awaits_approval"]:
            raise AirflowSkipException(f"nothing to approve: {published['reason']}")
        self.subject = f"Promote {published['name']} version {published['version']}?"
        self.body = comparison_text(published)
        for mail in self.mails:
            try:
                mail(context)
            except Exception:  # a mail server that is down may not end the wait for an answer
                self.log.exception("the request could not be mailed; it stands under Required Actions")
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Keep a person's rejection in the registry; that nobody answered in time is none."""
        if event.get("chosen_options") == [self.REJECT] and event.get("responded_by_user"):
            with keep_reason(context), connected(self.dask_conn_id, self.storage_conn_id):
                self._reject(context, event)
        return super().execute_complete(context, event)

    def _reject(self, context: Context, event: Mapping[str, Any]) -> None:
        from gnnflow import registry
        from gnnflow.graph.errors import GnnflowError
        from gnnflow_airflow.reading import read_config

        published, why = _published(context), (event.get("params_input") or {}).get(_WHY)
        try:
            registry.reject(
                read_config(self.config).workspace,
                published["name"],
                published["version"],
                by=f"in Airflow by {_name_of(event)}",
                why=str(why or ""),
            )
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from None


class PromoteOperator(BaseOperator):
    """Put the approved version in service, if the champion has not moved since it was compared.

    So a task that is tried or cleared again promotes no version that a person has rolled back since.
    """

    template_fields: Sequence[str] = ("config",)

    def __init__(
        self,
        *,
        config: str,
        approval: str,
        dask_conn_id: str | None = None,
        storage_conn_id: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.dask_conn_id = dask_conn_id
        self.storage_conn_id = storage_conn_id
        self.config = config
        self.approval = approval

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the name and the version that is in service."""
        with keep_reason(context), connected(self.dask_conn_id, self.storage_conn_id):
            return self._promote(context)

    def _promote(self, context: Context) -> dict[str, Any]:
        from gnnflow import registry
        from gnnflow.graph.errors import GnnflowError
        from gnnflow_airflow.reading import read_config

        published = _published(context)
        answer = context["ti"].xcom_pull(task_ids=self.approval)
        user = _name_of(answer)
        try:
            aliases = registry.promote(
                read_config(self.config).workspace,
                published["name"],
                published["version"],
                reason=f"approved by {user}: {published['reason']}",
                seen=published["seen"],
            )
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from None
        self.log.info("%s version %s is in service, approved by %s", published["name"], aliases.champion, user)
        return {"name": published["name"], "version": aliases.champion, "approved_by": user}


def comparison_text(published: Mapping[str, Any]) -> str:
    """Return the text of a request in Markdown: the reason, and the scores of both versions on the same targets."""
    from gnnflow.report.formats import score_cell
    from gnnflow.storage.filesystem import join
    from gnnflow.storage.run_folder import REPORT
    from gnnflow_airflow.links import web_address

    candidate, champion = published["candidate"], published["champion"]
    report = web_address(join(published["run"], REPORT))
    lines = [f"{published['reason']}.", "", f"Run: `{published['run']}`{report and f', [report]({report})'}", ""]
    theirs = f"version {published['in_service']} (in service)" if champion else "nothing to compare with"
    lines += [f"| | version {published['version']} (new) | {theirs} |", "|---|---|---|"]
    names = [name for name in candidate if not is_bound(name)]
    names.sort(key=lambda name: (name != f"test.{published['metric']}", name))
    lines += [f"| {name} | {score_cell(candidate, name)} | {score_cell(champion, name)} |" for name in names]
    return "\n".join(lines)


def _name_of(answer: Mapping[str, Any]) -> str:
    """Return the name of who answered a request."""
    return (answer.get("responded_by_user") or {}).get("name") or "nobody known"


def _published(context: Context) -> dict[str, Any]:
    """Return what `publish` found."""
    return dict(context["ti"].xcom_pull(task_ids=_PUBLISH))
