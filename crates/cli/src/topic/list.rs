//! `lockgate topic list`.

use lockgate_client::Admin;

use super::view;
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

pub(crate) async fn run(admin: &Admin, global: &Global) -> Result<(), Failure> {
    let topics = admin.list_topics().await?;
    output::print(global, || view::list_text(&topics), || view::list_json(&topics))
}
