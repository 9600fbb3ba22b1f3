/** The console of organizers: where it begins, and which page belongs to which address. */

import "./common/tokens.css";
import "./common/base.css";
import "./common/ui/ui.css";
import "./shell.css";
// Styles are one file: a part of the program that is loaded later brings none.
import "./pages/activity.css";
import "./pages/settings.css";
import "./pages/stages.css";
import "./pages/usage.css";
import "./pages/watermark.css";

import { render } from "preact";

import { isSignedOut, mode } from "./calls";
import { onDemand } from "./common/on-demand";
import { match, place, startRouter } from "./common/router";
import { ErrorState, Loading } from "./common/ui/states";
import { startWords } from "./common/words";
import { AlbumSection } from "./pages/album";
import { type Section, sections } from "./pages/album-frame";
import { AlbumsPage } from "./pages/albums";
import { SignInPage } from "./pages/sign-in";
import { loadSession, may, session, sessionFailure } from "./session";
import { NotFound, Shell } from "./shell";
import { loaders } from "./text";

const organization = () => import("./pages/organization");
const AccountPage = onDemand(async () => (await organization()).AccountPage);
const AccountsPage = onDemand(async () => (await organization()).AccountsPage);
const ActivityPage = onDemand(async () => (await organization()).ActivityPage);
const KeysPage = onDemand(async () => (await organization()).KeysPage);
const OperatorPage = onDemand(async () => (await organization()).OperatorPage);
const UsagePage = onDemand(async () => (await organization()).UsagePage);
const WebhookPage = onDemand(async () => (await organization()).WebhookPage);
const WebhooksPage = onDemand(async () => (await organization()).WebhooksPage);
const WelcomePage = onDemand(async () => (await organization()).WelcomePage);

function App() {
  const { path } = place.value;
  const welcome = match("/welcome/:token", path);
  if (welcome) return <WelcomePage token={welcome["token"] ?? ""} />;
  if (sessionFailure.value) {
    return (
      <main class="alone">
        <ErrorState failure={sessionFailure.value} onRetry={() => void loadSession()} />
      </main>
    );
  }
  if (session.value === undefined) {
    return (
      <main class="alone">
        <Loading />
      </main>
    );
  }
  if (session.value === null) return <SignInPage />;
  // A page belongs to one mode, so another mode restarts it.
  return (
    <>
      <Shell key={mode.value}>{findPage(path)}</Shell>
      {isSignedOut.value && <SignInPage again />}
    </>
  );
}

function findPage(path: string) {
  const album = match("/albums/:album", path) ?? match("/albums/:album/:section", path);
  if (album) {
    const section = (album["section"] ?? "overview") as Section;
    const isThere = sections.includes(section) && (section !== "overview" || !album["section"]);
    return isThere ? <AlbumSection albumId={album["album"] ?? ""} section={section} /> : <NotFound />;
  }
  const photo = match("/albums/:album/photos/:photo", path);
  if (photo) return <AlbumSection albumId={photo["album"] ?? ""} section="photos" photoId={photo["photo"] ?? ""} />;
  const webhook = match("/webhooks/:webhook", path);
  if (webhook) return <WebhookPage webhookId={webhook["webhook"] ?? ""} />;
  return findPlainPage(path);
}

function findPlainPage(path: string) {
  switch (path) {
    case "/":
    case "/albums":
      return <AlbumsPage />;
    case "/webhooks":
      return <WebhooksPage />;
    case "/usage":
      return <UsagePage />;
    case "/account":
      return <AccountPage />;
    case "/activity":
      return <ActivityPage />;
    case "/keys":
      return may.own.value ? <KeysPage /> : <NotFound />;
    case "/accounts":
      return may.own.value ? <AccountsPage /> : <NotFound />;
    case "/operator":
      return may.operate.value ? <OperatorPage /> : <NotFound />;
    default:
      return <NotFound />;
  }
}

async function start(): Promise<void> {
  startRouter("/console");
  await Promise.all([startWords(loaders), match("/welcome/:token", place.value.path) ? null : loadSession()]);
  const app = document.getElementById("app");
  if (app) render(<App />, app);
}

void start();
