// Every operation of the partner API as an oRPC contract: what a partner's TypeScript program would import. Shapes are
// checked by the tests themselves, so the contract needs no schema library.
import { oc } from '@orpc/contract'

const post = (path) => oc.route({ method: 'POST', path })

export const contract = {
  albums: {
    create: post('/albums/create'),
    list: post('/albums/list'),
    get: post('/albums/get'),
    update: post('/albums/update'),
    delete: post('/albums/delete'),
    reprocess: post('/albums/reprocess'),
    progress: post('/albums/progress'),
    camerasList: post('/albums/cameras/list'),
    startlist: {
      import: post('/albums/startlist/import'),
      check: post('/albums/startlist/check'),
      get: post('/albums/startlist/get'),
      entries: post('/albums/startlist/entries'),
      delete: post('/albums/startlist/delete'),
    },
    watermark: {
      get: post('/albums/watermark/get'),
      signed: post('/albums/watermark/signed'),
      set: post('/albums/watermark/set'),
    },
    gallery: {
      get: post('/albums/gallery/get'),
      update: post('/albums/gallery/update'),
      reports: post('/albums/gallery/reports'),
      reportsErase: post('/albums/gallery/reports/erase'),
      reportsDismiss: post('/albums/gallery/reports/dismiss'),
    },
  },
  photos: {
    photo: {
      signed: post('/photos/photo/signed'),
      signedBatch: post('/photos/photo/signed/batch'),
      success: post('/photos/photo/success'),
      successBatch: post('/photos/photo/success/batch'),
      get: post('/photos/photo/get'),
      list: post('/photos/photo/list'),
      delete: post('/photos/photo/delete'),
      retry: post('/photos/photo/retry'),
    },
    search: {
      faceSigned: post('/photos/search/face/signed'),
      faceList: post('/photos/search/face/list'),
      textList: post('/photos/search/text/list'),
    },
    downloadCreate: post('/photos/download/create'),
  },
  facesErase: post('/faces/erase'),
  peopleErase: post('/people/erase'),
  erasures: {
    list: post('/erasures/list'),
    get: post('/erasures/get'),
    verify: post('/erasures/verify'),
  },
  events: {
    list: post('/events/list'),
  },
  webhooks: {
    create: post('/webhooks/create'),
    list: post('/webhooks/list'),
    get: post('/webhooks/get'),
    update: post('/webhooks/update'),
    rotate: post('/webhooks/rotate'),
    test: post('/webhooks/test'),
    deliveriesList: post('/webhooks/deliveries/list'),
    deliveriesGet: post('/webhooks/deliveries/get'),
    redeliver: post('/webhooks/redeliver'),
    delete: post('/webhooks/delete'),
  },
  credits: {
    get: post('/credits/get'),
    mockSet: post('/credits/mock/set'),
  },
  usage: {
    get: post('/usage/get'),
    costs: post('/usage/costs'),
  },
  // Not part of the API: an unknown path must still come back as an error that the client understands.
  nothing: post('/no/such/path'),
}
