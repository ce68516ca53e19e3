"""Svelte components: TypeScript, a superset of JavaScript, between `<script>` and `</script>`."""

from dataclasses import replace

from midfill_infill.languages import vue

LANGUAGE = replace(vue.LANGUAGE, id="svelte", title="Svelte", extensions=(".svelte",))
