import js from "@eslint/js";
import globals from "globals";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "src/contract.ts", "src/messages.ts"] },
  js.configs.recommended,
  {
    languageOptions: { globals: globals.node },
    rules: { "no-unused-vars": ["error", { varsIgnorePattern: "^_" }] },
  },
  {
    files: ["src/**/*.ts"],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      "@typescript-eslint/no-unused-vars": ["error", { varsIgnorePattern: "^_", argsIgnorePattern: "^_" }],
      // Texts of errors contain shapes, which are arrays of numbers.
      "@typescript-eslint/restrict-template-expressions": ["error", { allowArray: true, allowNumber: true }],
    },
  },
);
