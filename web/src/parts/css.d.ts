// Style sheets are bundled by esbuild; to TypeScript an import of one has no value.
declare module "*.css";
