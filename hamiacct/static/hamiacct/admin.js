// What the admin's theme leaves to a mouse can be reached and pressed with a keyboard, too.
"use strict";

(() => {
  const PRESSED = "[x-on\\:click]:not(a[href]):not(button):not(input):not(select):not(summary)";

  const reach = () => {
    for (const one of document.querySelectorAll(PRESSED)) {
      if (one.hasAttribute("tabindex") || one.id === "changelist-filter-close") continue;
      one.tabIndex = 0;
      one.setAttribute("role", "button");
      if (!one.textContent.trim() || one.classList.contains("material-symbols-outlined")) {
        one.setAttribute("aria-label", one.getAttribute("title") || "menu");
      }
    }
    const content = document.getElementById("content");
    if (content) {
      content.tabIndex = -1;
      content.setAttribute("role", "main");
    }
  };

  document.addEventListener("DOMContentLoaded", reach);
  document.addEventListener("htmx:afterSettle", reach);
  document.addEventListener("keydown", (event) => {
    const one = event.target;
    if ((event.key === "Enter" || event.key === " ") && one.matches && one.matches(PRESSED)) {
      event.preventDefault();
      one.click();
    }
  });
})();
