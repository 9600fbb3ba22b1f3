/** The pages of an organization and of operators: a part of the program that is loaded on demand. */

export { AccountPage } from "./account";
export { AccountsPage } from "./accounts";
export { ActivityPage } from "./activity";
export { AllErasuresPage } from "./erasures";
export { KeysPage } from "./keys";
export { OperatorPage } from "./operator";
export { UsagePage } from "./usage";
export { WebhookPage } from "./webhook";
export { WebhooksPage } from "./webhooks";
export { WelcomePage } from "./welcome";
