// The vote in groups of training examples that vote alike, where a few examples do not explain it.

import { get, oneFile } from "./api.js";
import { chip, named } from "./chips.js";
import { aside, brief, button, commas, el, fill, link, linkTo, note, numeral, percent, plural, text } from "./dom.js";
import { against, apart, bar, chooser, comparison, picture, whole } from "./records.js";
import { words } from "./words.js";

const count = (n) => plural(n, "example");

export function showGroups(app, answer) {
  const { explanation: e } = answer;
  const share = e.groups.reduce((sum, group) => sum + group.share, 0);
  return el("section", { id: "groups", "aria-labelledby": "groups-title" },
    el("h3", { id: "groups-title" }, "Votes by group, heaviest first"),
    whole(e.groups.map((group) => ({ share: group.share, name: `${name(app, group)}, ${count(group.size)}`, other: against(group, e) })), 1 - share),
    note(el("label", {}, "Show ", chooser(app, "k-groups")), ` of ${commas(e.n_groups)} groups: ${percent(share)} of the vote.`),
    { image: () => el("p", { class: "member" }, picture(e.record, "this example"), "this example"), text: () => words(app, answer) }[answer.kind]?.(),
    el("ul", { class: "voters" }, e.groups.map((group, i) => row(app, answer, group, i))),
    answer.kind === "table" ? el("details", { id: "alike" }, el("summary", {}, "The examples most alike, by column"),
      comparison("compared-groups", answer.compared_groups, e.groups.map((group) => [label(app, group), el("div", {}, brief(group.members[0].id, 30))]))) : null,
    note(app.start.guide.groups));
}

function row(app, answer, group, i) {
  const { explanation: e } = answer;
  const other = against(group, e);
  const where = answer.groups?.[i];
  const inside = el("div", {});
  const more = el("details", { class: "opened", ontoggle: (event) => event.target.open && app.tried(open(app, answer, i, inside)) },
    el("summary", { class: "description", title: "Members and subgroups" }, group.compared ?? "Members and subgroups"), inside);
  return el("li", { class: "group", onmouseenter: () => app.marks.outline("hover", where?.discs ?? []), onmouseleave: () => app.marks.outline("hover", []) },
    head(app, group, e, other && i === e.groups.length - 1 && e.groups.slice(0, i).every((each) => each.label === e.label)),
    more,
    el("p", { class: "alike" }, voter(app, answer, group.members[0], where?.member_points[0], "most alike: ")));
}

function head(app, group, e, rival) {
  return el("div", { class: "voter" },
    el("span", {}, label(app, group), " ", count(group.size), rival ? aside(" (the strongest group for another label)") : null),
    el("span", { class: "share", data: { share: String(group.share), size: String(group.size) }, title: String(group.share) }, percent(group.share)),
    bar(group.share, against(group, e)));
}

const name = (app, group) => named(app, app.task.unit === "number" ? [group.label].flat(2)[0] : group.label);

// What the members of a group vote for: a label, or numbers with a mean and a range.
function label(app, { label: given }) {
  if (app.task.unit !== "number") return chip(app, given);
  const [mean, low, high] = app.task.subjects ? given[app.task.subject] : given;
  return [chip(app, mean), aside(low === high ? " all" : ` ${numeral(low)} to ${numeral(high)}`)];
}

// An example with its record, and a button that selects it.
function voter(app, answer, member, point, before = null) {
  return el("span", { class: "member", title: apart(answer, member) }, before ? aside(before) : null, picture(member.record, `training example ${text(member.id)}`),
    point === undefined ? el("b", {}, brief(member.id, 40)) : linkTo(app, point, member.id, false),
    " ", point === undefined || oneFile ? null : button({ class: "link note", "aria-label": `Compare with ${brief(member.id, 40)}`, onclick: () => app.compare({ point }) }, "compare"),
    " ", member.size > 1 ? aside(`votes for ${count(member.size)} `) : null,
    aside(apart(answer, member)));
}

async function open(app, answer, i, place) {
  const group = answer.explanation.groups[i];
  const where = answer.groups?.[i];
  const members = el("ul", { class: "members" }, group.members.map((member, j) => el("li", {}, voter(app, answer, member, where?.member_points[j]), ` ${percent(member.share)}`)));
  fill(place, el("h4", {}, "Members most like this example"), members);
  if (oneFile) return;
  const found = await get(`/explorer/answers/${answer.answer}/groups/${i}`);
  if (!found.n) return;
  place.append(el("h4", {}, `Subgroups: ${found.subgroups.length < found.n ? `the ${found.subgroups.length} heaviest of ` : ""}${commas(found.n)}`),
    el("ul", { class: "members" }, found.subgroups.map((part) => el("li", { class: "subgroup", onmouseenter: () => app.marks.outline("hover", part.discs), onmouseleave: () => app.marks.outline("hover", where?.discs ?? []) },
      el("div", { class: "voter" }, el("span", {}, count(part.size)), el("span", { class: "share", data: { share: String(part.share), size: String(part.size) } }, percent(part.share)),
        bar(part.share, against(group, answer.explanation))),
      aside("most alike: "), voter(app, answer, part.members[0], part.member_points[0]), " ",
      part.discs.length ? link({ onclick: () => app.select(part.discs[0]) }, "list its members") : null))));
}
