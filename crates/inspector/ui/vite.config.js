import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// The names of files stay the same from one build to the next: they are compiled into the crate. `FERRATA_UI_OUT` is where the gate builds
// another copy, to hold it against the committed one.
export default defineConfig({
  base: './',
  plugins: [svelte()],
  worker: { format: 'es', rollupOptions: { output: { entryFileNames: 'layout.js' } } },
  build: {
    outDir: process.env.FERRATA_UI_OUT ?? '../assets',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    // Everything in one file each: nothing in an attribute or an inline script, which the policy of the page forbids.
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    reportCompressedSize: true,
    rollupOptions: {
      output: { entryFileNames: 'app.js', chunkFileNames: '[name].js', assetFileNames: 'app[extname]', codeSplitting: false },
    },
  },
});
