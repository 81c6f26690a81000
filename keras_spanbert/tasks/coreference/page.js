let chosen = null, shown = null;
const light = (number) => {
  if (number === shown) return;
  shown = number;
  for (const lit of element.querySelectorAll(".coref .lit")) lit.classList.remove("lit");
  if (number === null) return;
  for (const part of element.querySelectorAll(`.coref [data-cluster="${number}"]`))
    part.classList.add("lit");
};
const choose = (number) => {
  chosen = number;
  light(chosen);
  for (const button of element.querySelectorAll(".coref button"))
    button.setAttribute("aria-pressed", button.dataset.cluster === chosen);
};
const clusterAt = (event) => {
  const part = event.target.closest(".coref [data-cluster]");
  return part && part.dataset.cluster;
};
element.addEventListener("pointerover", (event) => light(clusterAt(event) ?? chosen));
element.addEventListener("pointerleave", () => light(chosen));
element.addEventListener("focusin", (event) => light(clusterAt(event) ?? chosen));
element.addEventListener("focusout", () => light(chosen));
element.addEventListener("click", (event) => {
  const number = clusterAt(event);
  if (number === null) return;
  choose(chosen === number ? null : number);
  if (chosen !== null && event.target.closest("button"))
    element.querySelector(`mark[data-cluster="${number}"]`).scrollIntoView({ block: "center" });
});
element.addEventListener("keydown", (event) => {
  if (event.key === "Escape") choose(null);
});
