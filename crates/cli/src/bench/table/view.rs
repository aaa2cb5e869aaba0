//! The table, as Markdown and as JSON.

use serde_json::{Value, json};

use super::{Budget, Row};
use crate::bench::machine::Machine;

pub(super) fn text(machine: &Machine, rows: &[Row]) -> String {
    let mut lines = vec![
        format!("{machine}\n"),
        "| work | measured | against | ratio | budget | met |".into(),
        "|---|---|---|---|---|---|".into(),
    ];
    lines.extend(rows.iter().map(|row| {
        let Row { work, measured, against, ratio, budget } = row;
        let met = budget.is_met(*ratio).map_or("–", |met| if met { "yes" } else { "no" });
        format!("| {work} | {measured} | {against} | {ratio:.3} | {} | {met} |", budget_text(*budget))
    }));
    lines.join("\n")
}

pub(super) fn json(machine: &Machine, rows: &[Row]) -> Value {
    let rows: Value = rows
        .iter()
        .map(|row| {
            json!({
                "work": row.work, "measured": row.measured, "against": row.against, "ratio": row.ratio,
                "budget": budget_text(row.budget), "met": row.budget.is_met(row.ratio),
            })
        })
        .collect();
    json!({ "bench": "all", "machine": machine.to_string(), "rows": rows })
}

fn budget_text(budget: Budget) -> String {
    match budget {
        Budget::AtLeast(least) => format!("≥ {least}"),
        Budget::AtMost(most) => format!("≤ {most}"),
        Budget::None => "none".into(),
    }
}
