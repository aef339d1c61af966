"""A teleport's certificate, for people."""

from __future__ import annotations

from rich.table import Table

from levelport.solvers import TeleportResult


def certificate_table(result: TeleportResult, title: str) -> Table:
    """What was reached, how near it is to a KKT point, and what it cost."""
    table = Table(title=title, title_justify="left", show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    curvature, cost = result.curvature, result.cost
    step = f"{1.0 / curvature:.6g}" if curvature > 0.0 else "none: the curvature is not positive"
    rows = {
        "status": f"{result.status.name.lower().replace('_', ' ')}: {result.message}",
        "value": f"{result.value_start:.10g} → {result.value:.10g}",
        "violation": f"{result.violation:.3g}",
        "gradient norm": f"{result.gradient_norm_start:.6g} → {result.gradient_norm:.6g}",
        "gain": f"{result.gain:.6g}",
        "KKT residual": f"{result.kkt_residual:.3g}   ‖P H g‖/‖g‖²: 0 at a KKT point",
        "alignment": f"{result.alignment:.12g}   cosine of g and H g: 1 at a KKT point",
        "curvature λ": f"{curvature:.6g}   ⟨g, H g⟩/‖g‖²",
        "Newton step 1/λ": step,
        "cost": (
            f"{cost.values} values, {cost.gradients} gradients, {cost.hvps} Hessian-vector products "
            f"= {cost.gradient_equivalents:g} gradient equivalents, {cost.seconds:.3g} s"
        ),
    }
    for name, text in rows.items():
        table.add_row(name, text)
    return table
