"""Audits a completed run from its artifacts: its scores agree, and none saw what it should not have.

Each check is a function of the run to a finding. It reads the artifacts partition by partition, and names what it
cannot tell from them as `not checked`, with the reason.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime

from gnnflow.graph.errors import StorageError
from gnnflow.graph.findings import Finding
from gnnflow.graph.run_facts import InferFacts
from gnnflow.stages.audit_edges import check_held_out, check_later
from gnnflow.stages.audit_findings import Audit, AuditedRun
from gnnflow.stages.audit_sums import check_conservation
from gnnflow.stages.audit_targets import check_columns, check_predictions
from gnnflow.stages.report import renew_report
from gnnflow.storage.documents import write_document
from gnnflow.storage.filesystem import join
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.run_folder import AUDIT

_CHECKS = (check_conservation, check_held_out, check_later, check_columns, check_predictions)


def audit_run(run: str) -> Audit:
    """Return the findings about the run in a folder. Raises StorageError where a file of it is missing or damaged."""
    audited = AuditedRun.of(run)
    return Audit(run, (check_parity(audited), *(check(audited) for check in _CHECKS)))


def keep_audit(found: Audit) -> Audit:
    """Store findings in the run's folder and show them in its report; return them with the reason where this failed.

    Whoever audits may not be allowed to write there, and the findings are theirs all the same.
    """
    try:
        findings = [asdict(each) for each in found.findings]
        write_document(join(found.run, AUDIT), {"at": datetime.now(UTC).isoformat(), "findings": findings})
        renew_report(found.run)
    except (StorageError, OSError) as error:
        return replace(found, not_kept=str(error))
    return found


def check_parity(run: AuditedRun) -> Finding:
    """Report the parity certificate: scores of GraphInfer and of the k-hop path that trained the model agree."""
    infer = run.artifacts["infer"]
    parity = read_facts(infer, read_manifest(infer), InferFacts).parity
    if parity.holds is None:
        why = f"{parity.text} (infer.parity_samples)"
        return Finding("parity", "not checked", "no target", why, "Run with infer.parity_samples: 256.")
    if parity.holds:
        return Finding("parity", "holds", parity.text)
    fix = "Do not publish it. A custom layer may keep state between calls or mix rows of a batch."
    return Finding("parity", "broken", parity.text, "scores depend on how they are computed", fix)
