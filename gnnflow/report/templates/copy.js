for (const button of document.querySelectorAll("button[data-copy]")) {
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  });
}
// A table that is wider than the screen says so.
const boxes = [...document.querySelectorAll(".panel, .scroll, .picture.wide .drawing")].map((box) => {
  const hint = document.createElement("p");
  hint.className = "swipe";
  hint.textContent = "Swipe sideways to see all of it \u2192";
  hint.hidden = true;
  box.prepend(hint);
  return [box, hint];
});
const look = () => {
  for (const [box, hint] of boxes) {
    hint.hidden = box.scrollWidth <= box.clientWidth + 1;
    if (!hint.hidden) box.tabIndex = 0;
  }
};
look();
addEventListener("resize", look);
document.addEventListener("toggle", look, true);
